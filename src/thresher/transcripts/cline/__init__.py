"""The transcript format of Cline, Roo Code and Kilo Code."""
