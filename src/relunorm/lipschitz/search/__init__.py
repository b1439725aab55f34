"""The search for steep regions: `slopes` asks, `signs` is its kernel, `proof` replays its tape."""
