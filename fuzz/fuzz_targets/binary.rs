//! Binary bar files, Parquet and DBN, and compressed files as they are: the bytes are the file.

#![no_main]

use foxhunt_core::settings::DataSettings;
use foxhunt_fuzz::{prepare, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: prepare(), |data: &[u8]| {
    let _ = read(data, &DataSettings::default());
});
