"""What was played before and may be learned from again.

pool     trajectories by freshness, each way of doing a task a few times at most
"""
