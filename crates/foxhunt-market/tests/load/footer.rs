//! Parquet footers and page headers that keep the decoder busy for nothing.

use std::sync::Arc;

use arrow_array::StringArray;
use foxhunt_market::MarketError;
use parquet::file::metadata::{
    FileMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter,
};
use parquet::file::properties::{WriterProperties, WriterVersion};

use crate::binary::{parquet_bytes, sample, sample_columns, small_groups};
use crate::support::{file, load_plain};

/// A Parquet file with more fields at the end of its footer.
fn with_fields(whole: &[u8], fields: &[u8]) -> Vec<u8> {
    let (body, tail) = whole.split_at(whole.len() - 8);
    let mut bytes = body[..body.len() - 1].to_vec();
    bytes.extend(fields);
    bytes.push(0);
    let length = u32::from_le_bytes(tail[..4].try_into().unwrap()) + (bytes.len() - body.len()) as u32;
    bytes.extend(length.to_le_bytes());
    bytes.extend(b"PAR1");
    bytes
}

/// The same with fields that the format does not have, each as the bytes behind its type and number.
fn with_unknown_fields(whole: &[u8], fields: &[(u8, &[u8])]) -> Vec<u8> {
    let fields: Vec<_> = fields.iter().map(|(kind, value)| field(100, *kind, value)).collect();
    with_fields(whole, &fields.concat())
}

/// A field with its number written out.
fn field(number: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    let coded = u16::from(number) * 2;
    let number = if coded < 0x80 { vec![coded as u8] } else { vec![coded as u8 | 0x80, (coded >> 7) as u8] };
    [&[kind], &number[..], value].concat()
}

/// Field 100, a list of 2^31 booleans, which have no bytes: nine bytes in all.
const BOOLEANS: [u8; 9] = [0x09, 0xc8, 0x01, 0xf2, 0xff, 0xff, 0xff, 0xff, 0x07];

/// A field that is told to be a text, [`BOOLEANS`]. Who knows better and reads an integer takes the text's length for it,
/// and then meets the list.
fn integer_told_as_text(number: u8) -> Vec<u8> {
    field(number, 8, &[&[BOOLEANS.len() as u8], &BOOLEANS[..]].concat())
}

/// A struct as the value of a field.
fn structure(fields: &[u8]) -> Vec<u8> {
    [fields, &[0]].concat()
}

/// A field with a list of as many structs, of which the first has fields.
fn structures(number: u8, count: u8, fields: &[u8]) -> Vec<u8> {
    field(number, 9, &[&[count << 4 | 12], fields, &vec![0; count.into()]].concat())
}

fn refused_for(name: &str, bytes: Vec<u8>, cause: &str) {
    match load_plain(&file("bars.parquet", bytes).path) {
        Err(error @ MarketError::Corrupt { format: "Parquet", .. }) => {
            assert!(error.to_string().contains(cause), "{name}: {error}");
        }
        other => panic!("{name}: {:?}", other.map(|l| l.bars.len())),
    }
}

/// The decoder would count to 2^31 for five bytes, and then read on as if nothing had been.
#[test]
fn a_footer_cannot_name_more_values_than_it_has_bytes() {
    let bars = sample();
    let whole = parquet_bytes(sample_columns(&bars), small_groups());
    let list_of = |kind: u8| [0xf0 | kind, 0xff, 0xff, 0xff, 0xff, 0x07];
    let (ones, twos) = (list_of(1), list_of(2));
    let inside: Vec<u8> = [&[0x1c, 0x19], &twos[..], &[0]].concat();
    // Their own bytes, which the decoder does not step over, are such a list.
    let hidden: Vec<u8> = [&[0x92, 0x09, 0xc8, 0x01], &twos[..]].concat();
    let wrong: [(&str, u8, &[u8]); 9] = [
        ("booleans", 9, &twos),
        ("a list hidden in booleans", 9, &hidden),
        ("booleans of the other kind", 9, &ones),
        ("a set", 10, &twos),
        ("a map of booleans", 11, &[0xff, 0xff, 0xff, 0xff, 0x07, 0x12]),
        ("a list in a struct in a list", 9, &inside),
        ("structs", 9, &list_of(12)),
        ("a text that is longer than the footer", 8, &[0xff, 0xff, 0x7f]),
        ("no type that there is", 14, &[0]),
    ];
    for (name, kind, value) in wrong {
        refused_for(name, with_unknown_fields(&whole, &[(kind, value)]), "the footer cannot be read");
    }
    // What a newer writer may put there costs nothing.
    let right: [(u8, &[u8]); 9] = [
        (1, &[]),
        (2, &[]),
        (5, &[0x80, 0x01]),
        (7, &[0; 8]),
        (8, &[3, b'n', b'e', b'w']),
        (9, &[0]),
        (9, &[0x35, 1, 2, 3]),
        (11, &[2, 0x58, 1, 1, b'a', 2, 0]),
        (12, &[0x15, 2, 0x1c, 0x11, 0, 0]),
    ];
    let loaded = load_plain(&file("bars.parquet", with_unknown_fields(&whole, &right)).path).unwrap();
    assert_eq!(loaded.bars, bars);
}

/// The decoder reads what it knows as the format has it, whatever the footer tells, and would find lists of 2^31 booleans
/// where nobody else does.
#[test]
fn fields_of_a_footer_are_of_the_types_of_the_format() {
    let bars = sample();
    let columns = sample_columns(&bars);
    let n_columns = columns.len() as u8;
    let whole = parquet_bytes(columns, small_groups());
    // In a footer that has no more than these fields, because a second schema is not read.
    let first: [(&str, Vec<u8>); 4] = [
        ("the version", integer_told_as_text(1)),
        ("a number of children", structures(2, 1, &integer_told_as_text(5))),
        ("the bits of an integer", {
            let integer = structure(&integer_told_as_text(1));
            structures(2, 1, &field(10, 12, &structure(&field(10, 12, &integer))))
        }),
        // The text's length is taken for the head of a field.
        ("a logical type", structures(2, 1, &field(10, 8, &[&[9], &BOOLEANS[1..], &[0]].concat()))),
    ];
    for (name, fields) in first {
        let footer = structure(&fields);
        let bytes = [&b"PAR1"[..], &footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat();
        refused_for(name, bytes, "the footer cannot be read");
    }
    let in_chunk = |fields: &[u8]| structures(4, 1, &structures(1, n_columns, fields));
    let in_column = |fields: &[u8]| in_chunk(&field(3, 12, &structure(fields)));
    let again: [(&str, Vec<u8>); 8] = [
        ("rows of the file", integer_told_as_text(3)),
        // The three bytes of the name are a field of their own to who takes their number for the value.
        ("the writer", [field(6, 5, &[3]), field(50, 8, &[9]), BOOLEANS.to_vec()].concat()),
        // A length of twelve is the head of an empty list of structs.
        ("words of the writer", field(5, 8, &[&[12], &BOOLEANS[..], &[0; 3]].concat())),
        ("rows of a group", structures(4, 1, &integer_told_as_text(3))),
        ("the place of a chunk", in_chunk(&integer_told_as_text(2))),
        ("values of a column", in_column(&integer_told_as_text(5))),
        // A length of 21 is the head of a list of one integer.
        ("encodings", in_column(&field(2, 8, &[&[21, 0], &BOOLEANS[..], &[0; 11]].concat()))),
        ("statistics", in_column(&field(12, 8, &[&[9], &BOOLEANS[1..], &[0]].concat()))),
    ];
    for (name, fields) in again {
        refused_for(name, with_fields(&whole, &fields), "the footer cannot be read");
    }
    // Told as what they are, they may come again.
    let right = [field(1, 5, &[2]), field(6, 8, &[2, b'm', b'e'])].concat();
    assert_eq!(load_plain(&file("bars.parquet", with_fields(&whole, &right)).path).unwrap().bars, bars);
}

/// Properties of files whose columns have several pages each.
fn small_pages(version: WriterVersion) -> WriterProperties {
    WriterProperties::builder()
        .set_writer_version(version)
        .set_max_row_group_row_count(Some(3000))
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(500)
        .set_write_page_header_statistics(true)
        .set_statistics_truncate_length(None)
        .build()
}

/// Headers of pages are structs as well, and what they hold is found by the decoder alone.
#[test]
fn page_headers_are_of_the_types_of_the_format() {
    let bars = sample();
    let closes = |bytes: &[u8]| load_plain(&file("bars.parquet", bytes).path).unwrap().bars.close;
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let mut columns = sample_columns(&bars);
        // Texts that do not fit into what is read of a header at first.
        let symbol = "EURUSD".repeat(900);
        columns.push(("symbol", Arc::new(StringArray::from(vec![symbol; bars.len()]))));
        let whole = parquet_bytes(columns, small_pages(version));
        assert_eq!(closes(&whole), bars.close);

        let scratch = file("bars.parquet", &whole);
        let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
        reader.try_parse(&std::fs::File::open(&scratch.path).unwrap()).unwrap();
        let metadata = reader.finish().unwrap();
        let group = 1;
        let page = |column: usize, page: usize| {
            metadata.page_index_for_row_group(group).page_locations(column).unwrap()[page].offset as usize
        };
        let dictionary = metadata.row_group(group).column(2).dictionary_page_offset().unwrap() as usize;
        let wrong_type = integer_told_as_text(2);
        for (name, at) in [("dictionary", dictionary), ("first", page(0, 0)), ("later", page(5, 1))] {
            for (kind, field) in [("booleans", &BOOLEANS[..]), ("a wrong type", &wrong_type[..])] {
                let mut bytes = whole.clone();
                bytes[at..at + field.len()].copy_from_slice(field);
                refused_for(&format!("{name}, {kind}"), bytes, "the header of a page cannot be read");
            }
        }
        // Nobody reads this one.
        let mut bytes = whole.clone();
        let at = page(1, 0);
        bytes[at..at + BOOLEANS.len()].copy_from_slice(&BOOLEANS);
        assert_eq!(closes(&bytes), bars.close);
    }
}

/// Row groups that are the same bytes over and over: what has to be looked through would be as many times the file.
#[test]
fn row_groups_do_not_share_bytes() {
    let bars = sample();
    let whole = parquet_bytes(sample_columns(&bars), WriterProperties::builder().build());
    let scratch = file("bars.parquet", &whole);
    let metadata =
        ParquetMetaDataReader::new().parse_and_finish(&std::fs::File::open(&scratch.path).unwrap()).unwrap();
    let with_groups = |times: i64| {
        let told = metadata.file_metadata();
        let rows = told.num_rows() * times;
        let schema = told.schema_descr_ptr();
        let told = FileMetaData::new(told.version(), rows, None, None, schema, None);
        let groups = vec![metadata.row_group(0).clone(); times as usize];
        let mut bytes = whole.clone();
        // The writer counts from where it begins.
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &ParquetMetaData::new(told, groups)).finish().unwrap();
        bytes.extend(footer);
        bytes
    };
    assert_eq!(load_plain(&file("bars.parquet", with_groups(1)).path).unwrap().bars, bars);
    refused_for("shared", with_groups(50), "the footer gives row groups the same bytes");
}

/// An encrypted file is told as what it is, whether its footer is encrypted too or only what that leads to, and a text that begins alike is a text.
#[test]
fn encrypted_files_are_told_as_such() {
    let bars = sample();
    let whole = parquet_bytes(sample_columns(&bars), small_groups());
    let algorithm = field(8, 12, &structure(&field(1, 12, &structure(&field(2, 8, &[2, 7, 7])))));
    // A module begins with its length.
    let module = [&b"PARE"[..], &60_u32.to_le_bytes(), &[0x9e; 60], &64_u32.to_le_bytes(), b"PARE"].concat();
    for (name, bytes) in [("columns", with_fields(&whole, &algorithm)), ("all", module)] {
        match load_plain(&file("bars.parquet", bytes).path) {
            Err(MarketError::UnknownFormat { reason, .. }) => {
                assert!(reason.contains("encrypted"), "{name}: {reason}")
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    let text = "PARENT,time,open,high,low,close\nA,2024-01-02,1,2,1,2\nA,2024-01-03,1,2,1,2\n";
    assert_eq!(load_plain(&file("bars.csv", text.as_bytes()).path).unwrap().bars.len(), 2);
}
