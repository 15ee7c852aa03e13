"""What an op is, in every framework: definition, arguments, static parameters, results, rules."""
