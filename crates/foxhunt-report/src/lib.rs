//! Records in, HTML, JSON and tables out.
