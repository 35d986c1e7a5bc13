"""The engines that turn rules into token masks."""
