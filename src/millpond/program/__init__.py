"""What the user's program is: steps, their graph, the plan that is cut from it, its code."""
