//! Parquet footers that keep the decoder busy for nothing.

use foxhunt_market::MarketError;

use crate::binary::{parquet_bytes, sample, sample_columns, small_groups};
use crate::support::{file, load_plain};

/// A Parquet file with more fields in its footer than the decoder knows, each as the bytes behind its type and number.
fn with_unknown_fields(whole: &[u8], fields: &[(u8, &[u8])]) -> Vec<u8> {
    let (body, tail) = whole.split_at(whole.len() - 8);
    let mut bytes = body[..body.len() - 1].to_vec();
    for (kind, value) in fields {
        // Field 100, its number written out.
        bytes.extend([*kind, 0xc8, 0x01]);
        bytes.extend(*value);
    }
    bytes.push(0);
    let length = u32::from_le_bytes(tail[..4].try_into().unwrap()) + (bytes.len() - body.len()) as u32;
    bytes.extend(length.to_le_bytes());
    bytes.extend(b"PAR1");
    bytes
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
        let bytes = with_unknown_fields(&whole, &[(kind, value)]);
        match load_plain(&file("bars.parquet", bytes).path) {
            Err(error @ MarketError::Corrupt { format: "Parquet", .. }) => {
                assert!(error.to_string().contains("the footer"), "{name}: {error}");
            }
            other => panic!("{name}: {:?}", other.map(|l| l.bars.len())),
        }
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
