"""Talks to hardware and the operating system; produces recordings and machine states; knows nothing of analysis."""
