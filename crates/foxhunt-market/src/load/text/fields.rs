//! One line into fields.

/// Splits lines, reusing its memory.
pub(super) struct FieldBuffer {
    separator: u8,
    /// What lines end with, and so no line holds.
    terminator: u8,
    /// Start and end of each field.
    ranges: Vec<(usize, usize)>,
    /// Fields of a quoted line without their quotes.
    unquoted: Vec<u8>,
    ends: Vec<usize>,
}

/// The fields of one line.
pub(super) struct Fields<'a> {
    text: &'a [u8],
    ranges: &'a [(usize, usize)],
}

impl<'a> Fields<'a> {
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// A field; empty if there is none.
    #[inline]
    pub(super) fn get(&self, index: usize) -> &'a [u8] {
        self.ranges.get(index).map_or(&[], |&(start, end)| &self.text[start..end])
    }
}

impl FieldBuffer {
    pub(super) fn new(separator: u8, terminator: u8) -> Self {
        Self { separator, terminator, ranges: Vec::new(), unquoted: Vec::new(), ends: Vec::new() }
    }

    pub(super) fn separator(&self) -> u8 {
        self.separator
    }

    /// None when a quote is left open.
    #[inline]
    pub(super) fn split<'a>(&'a mut self, line: &'a [u8]) -> Option<Fields<'a>> {
        self.ranges.clear();
        let mut start = 0;
        let mut quotes = 0_usize;
        for (at, &byte) in line.iter().enumerate() {
            if byte == self.separator {
                self.ranges.push((start, at));
                start = at + 1;
            } else if byte == b'"' {
                quotes += 1;
            }
        }
        self.ranges.push((start, line.len()));
        match quotes {
            0 => Some(Fields { text: line, ranges: &self.ranges }),
            // An escaped quote is two, so a complete line has an even number.
            n if n % 2 == 1 => None,
            _ => Some(self.split_quoted(line)),
        }
    }

    #[cold]
    fn split_quoted<'a>(&'a mut self, line: &'a [u8]) -> Fields<'a> {
        // By itself it would end a record at a carriage return inside the line and drop the rest.
        let mut reader = csv_core::ReaderBuilder::new()
            .delimiter(self.separator)
            .terminator(csv_core::Terminator::Any(self.terminator))
            .build();
        // Unquoting never makes a line longer.
        self.unquoted.clear();
        self.unquoted.resize(line.len() + 1, 0);
        self.ends.clear();
        self.ends.resize(self.ranges.len() + 1, 0);
        let (_, _, written, ended) = reader.read_record(line, &mut self.unquoted, &mut self.ends);
        // The end of input closes the last field.
        let (_, _, _, more) = reader.read_record(&[], &mut self.unquoted[written..], &mut self.ends[ended..]);
        self.ranges.clear();
        let mut start = 0;
        for &end in &self.ends[..ended + more] {
            self.ranges.push((start, end));
            start = end;
        }
        Fields { text: &self.unquoted, ranges: &self.ranges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str, separator: u8) -> Option<Vec<String>> {
        let mut buffer = FieldBuffer::new(separator, b'\n');
        let fields = buffer.split(line.as_bytes())?;
        Some((0..fields.len()).map(|i| String::from_utf8_lossy(fields.get(i)).into_owned()).collect())
    }

    #[test]
    fn quotes_and_separators() {
        for (line, want) in [
            ("a,b,c", vec!["a", "b", "c"]),
            ("", vec![""]),
            (",,", vec!["", "", ""]),
            (r#""a","b",c"#, vec!["a", "b", "c"]),
            (r#""1,2",3"#, vec!["1,2", "3"]),
            (r#"3,"1,2""#, vec!["3", "1,2"]),
            (r#""say ""hi""",1"#, vec![r#"say "hi""#, "1"]),
            (r#""""#, vec![""]),
            (r#"a,"",b"#, vec!["a", "", "b"]),
            // A carriage return that ends no line belongs to its field.
            ("\"a\",b\r\"c\",d", vec!["a", "b\r\"c\"", "d"]),
            ("\"a\"\r,b", vec!["a\r", "b"]),
        ] {
            assert_eq!(split(line, b',').unwrap(), want, "{line}");
        }
        assert_eq!(split(r#""a;b";c"#, b';').unwrap(), ["a;b", "c"]);
        assert_eq!(split(r#""a,b"#, b','), None);
    }
}
