"""Environments: the base class, its tools, and the worlds that ship with Ferrata.

base        Environment: parse, check, act, report events
actions     from a model's raw text to one checked action
tools       a method becomes a tool with a JSON schema
scripts     scripted episodes that prove a judge right
observe     short and private observations
permissions what a task may touch
faults      seeded faults of tools
rewinding   snapshot, restore, fork, rollback of an episode (`snapshot` is the record)
audit       every action in a hash-chained log
workspace   real files, `database` real SQLite, `mailbox` real RFC 5322 messages
checker     the contract that every environment must fulfil
office/     files, a database, documents and mail
support/    a shop, its policies, and a customer who talks back
"""

from ferrata.envs.base import Environment
from ferrata.envs.scripts import Script, call
from ferrata.envs.tools import Effect, Refused, ToolError, tool
from ferrata.records import Task

__all__ = ["Effect", "Environment", "Refused", "Script", "Task", "ToolError", "call", "tool"]
