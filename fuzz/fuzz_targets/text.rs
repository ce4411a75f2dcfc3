//! Text bar files: plain, as they are; and the same content in gzip and Zstandard, whole and cut off.
//!
//! The first byte chooses how the file is to be read, the second where the compressed forms are cut.

#![no_main]

use std::io::Write as _;

use foxhunt_core::settings::{DataSettings, Repair, StampAt};
use foxhunt_fuzz::{prepare, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: prepare(), |data: &[u8]| {
    let Some((&[options, cut], content)) = data.split_first_chunk() else { return };
    let settings = settings(options);
    let plain = read(content, &settings);
    // What is compressed already, or no text, is another matter inside a compressed file.
    let marks: [&[u8]; 6] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], b"PAR1", b"DBN", &[0xff, 0xfe], &[0xfe, 0xff]];
    if marks.iter().any(|mark| content.starts_with(mark)) {
        return;
    }
    let whole = if cut.is_multiple_of(2) { gzip(content) } else { zstd::encode_all(content, 1).expect("memory") };
    match (plain, read(&whole, &settings)) {
        (Ok(plain), Ok(unpacked)) => assert_eq!(plain.bars, unpacked.bars, "compressed and plain differ"),
        (Err(_), Err(_)) => {}
        (plain, unpacked) => panic!("plain {:?}, compressed {:?}", plain.map(|l| l.report), unpacked.map(|l| l.report)),
    }
    let end = whole.len() * usize::from(cut) / 256;
    assert!(read(&whole[..end], &settings).is_err(), "cut off at {end} of {}", whole.len());
});

fn settings(options: u8) -> DataSettings {
    let bit = |n: u32| options >> n & 1 == 1;
    let repairs = [(0, Repair::Unsorted), (1, Repair::Duplicates), (2, Repair::Gaps)];
    DataSettings {
        repair: repairs.into_iter().filter(|(n, _)| bit(*n)).map(|(_, repair)| repair).collect(),
        decimal_comma: bit(3),
        stamp: if bit(4) { StampAt::Close } else { StampAt::Open },
        timezone: if bit(5) { "America/New_York" } else { "UTC" }.into(),
        symbol: bit(6).then(|| "IBM".to_owned()),
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}
