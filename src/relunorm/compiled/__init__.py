"""What every compiled loop shares: how it is compiled, and small linear programmes."""
