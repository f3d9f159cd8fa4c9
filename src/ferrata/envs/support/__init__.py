"""Customer support: a real shop, a customer who talks back, policies that are kept.

shop             the SQLite database: look-ups, effects, and what has changed
people           names, products, policies, and which values only evaluation may use
requests         what a customer can ask for and get
refusals         what a customer asks for and must not get
families         task families: which requests come together
customer         personas, and the customer of rules
customer_model   the customer as a model behind an OpenAI-compatible endpoint
judge            facts told, forbidden promises, private data, the verdict
speech           how a reply is read: plain words, clauses, questions
wordings         the words of refusals, reasons and deeds, and what must not be told with them
promises         forbidden promises, clause by clause; `promising` has their words
scripts          solutions and failures
written          the hand-written tasks
environment      the tools
"""

from __future__ import annotations

from ferrata.envs.support.environment import SupportEnvironment

__all__ = ["SupportEnvironment"]
