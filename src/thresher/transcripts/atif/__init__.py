"""The transcript format of ATIF."""
