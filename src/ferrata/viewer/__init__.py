"""Reading a run: trajectories in the terminal, one self-contained report in HTML.

replay    one trajectory turn by turn, and the list of those stored
story     gathers what the report says from the run's store
plots     line, bar and stacked plots as inline SVG
report    renders the story with templates/report.html.j2
"""
