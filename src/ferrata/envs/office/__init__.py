"""The office: real files, a real database, documents to write and messages to send.

language         names and numbers, and which of them only evaluation may use
phrases          the fixed sentences and stems of an episode
world            draws a world: notes, tables, distractors, mail
goals            what must come of a task, as an ordered list of parts
families         the table of task families; `tier1`, `tier2`, `tier3` hold them, `drafting` what they share
judge            whether documents, messages and answer are what was asked for
roles            what the people whom the agent writes to answer, and when
solutions        the steps that solve a task
demonstrations   the same with the flaws of people
proofs           scripted failures
environment      the nine tools
"""

from ferrata.envs.office.environment import OfficeEnvironment

__all__ = ["OfficeEnvironment"]
