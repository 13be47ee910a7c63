"""What writes files anew: metadata of files that are there, and files themselves."""
