//! The `foxhunt` command.

fn main() {}
