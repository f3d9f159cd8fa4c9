"""Reading a run: trajectories in the terminal, one self-contained report in HTML. Nothing here imports torch.

replay    one trajectory turn by turn, and the list of those stored
story     what the report says, gathered from the run's store
figures   from a story to its figures and tables
plots     line, stacked and interval plots as inline SVG
report    renders the story with templates/report.html.j2
text      showing what a model wrote exactly, and harmlessly
"""
