"""What the policies write and what restores read, replayed on access traces: numpy alone, no model and no files.

The policies are the product's own objects, told what a manager would tell them.
"""
