"""The office: real files, a real database, documents to write and messages to send.

language         names and numbers, and which of them only evaluation may use
phrases          the fixed sentences and stems of an episode
world            draws a world: notes, tables, distractors
families         task families: what is asked, what must come of it
judge            whether documents, messages and answer are what was asked for
demonstrations   scripted episodes, flawless and flawed
environment      the five tools
"""

from ferrata.envs.office.environment import OfficeEnvironment

__all__ = ["OfficeEnvironment"]
