"""The command line: parse, call, print.

    main      the commands
    boundary  errors become one sentence and an exit code
    live      what a person watches during training
    plan      what a recipe amounts to, for --dry-run
    project/  what `ferrata init` writes

Heavy libraries are imported inside the commands that use them, so that `ferrata --help` answers at once.
"""
