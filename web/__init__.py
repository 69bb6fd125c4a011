"""The page that the gateway serves at `/`: static files, read as package resources."""
