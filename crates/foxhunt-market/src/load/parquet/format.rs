//! The types of the fields of a Parquet file's footer and page headers, as the format tells them.
//!
//! From `parquet.thrift` of <https://github.com/apache/parquet-format>, August 2026. An enum is an [`I32`] and a union
//! a [`Struct`], of which one field is there. Names and meanings are not here, nor whether a field must be there.

use Type::{Binary, Bool, Double, I8, I16, I32, I64, List, Struct};

/// What a field holds. A text is [`Binary`].
pub(super) enum Type {
    Bool,
    I8,
    I16,
    I32,
    I64,
    Double,
    Binary,
    List(&'static Type),
    /// Fields by their numbers.
    Struct(&'static [(i16, Type)]),
}

impl Type {
    /// Of a struct's field, where the format knows one of this number.
    pub(super) fn field(&self, number: i16) -> Option<&Self> {
        let Self::Struct(fields) = self else { return None };
        fields.iter().find(|(known, _)| *known == number).map(|(_, kind)| kind)
    }

    /// Of a list's elements.
    pub(super) fn element(&self) -> Option<&Self> {
        if let Self::List(element) = self { Some(element) } else { None }
    }
}

macro_rules! structs {
    ($($name:ident { $($number:literal: $kind:expr),* })*) => {
        $(pub(super) const $name: Type = Struct(&[$(($number, $kind)),*]);)*
    };
}

structs! {
    FILE_META_DATA {
        1: I32, 2: List(&SCHEMA_ELEMENT), 3: I64, 4: List(&ROW_GROUP), 5: List(&KEY_VALUE), 6: Binary,
        7: List(&COLUMN_ORDER), 8: ENCRYPTION_ALGORITHM, 9: Binary
    }
    SCHEMA_ELEMENT {
        1: I32, 2: I32, 3: I32, 4: Binary, 5: I32, 6: I32, 7: I32, 8: I32, 9: I32, 10: LOGICAL_TYPE
    }
    LOGICAL_TYPE {
        1: EMPTY, 2: EMPTY, 3: EMPTY, 4: EMPTY, 5: DECIMAL, 6: EMPTY, 7: TIME, 8: TIME, 10: INTEGER, 11: EMPTY,
        12: EMPTY, 13: EMPTY, 14: EMPTY, 15: EMPTY, 16: VARIANT, 17: GEOMETRY, 18: GEOGRAPHY, 19: EMPTY
    }
    EMPTY {}
    DECIMAL { 1: I32, 2: I32 }
    TIME { 1: Bool, 2: TIME_UNIT }
    TIME_UNIT { 1: EMPTY, 2: EMPTY, 3: EMPTY }
    INTEGER { 1: I8, 2: Bool }
    VARIANT { 1: I8 }
    GEOMETRY { 1: Binary }
    GEOGRAPHY { 1: Binary, 2: I32 }
    ROW_GROUP {
        1: List(&COLUMN_CHUNK), 2: I64, 3: I64, 4: List(&SORTING_COLUMN), 5: I64, 6: I64, 7: I16
    }
    SORTING_COLUMN { 1: I32, 2: Bool, 3: Bool }
    COLUMN_CHUNK {
        1: Binary, 2: I64, 3: COLUMN_META_DATA, 4: I64, 5: I32, 6: I64, 7: I32, 8: COLUMN_CRYPTO_META_DATA, 9: Binary
    }
    COLUMN_META_DATA {
        1: I32, 2: List(&I32), 3: List(&Binary), 4: I32, 5: I64, 6: I64, 7: I64, 8: List(&KEY_VALUE), 9: I64, 10: I64,
        11: I64, 12: STATISTICS, 13: List(&PAGE_ENCODING_STATS), 14: I64, 15: I32, 16: SIZE_STATISTICS,
        17: GEOSPATIAL_STATISTICS
    }
    STATISTICS { 1: Binary, 2: Binary, 3: I64, 4: I64, 5: Binary, 6: Binary, 7: Bool, 8: Bool, 9: I64 }
    PAGE_ENCODING_STATS { 1: I32, 2: I32, 3: I32 }
    SIZE_STATISTICS { 1: I64, 2: List(&I64), 3: List(&I64) }
    GEOSPATIAL_STATISTICS { 1: BOUNDING_BOX, 2: List(&I32) }
    BOUNDING_BOX {
        1: Double, 2: Double, 3: Double, 4: Double, 5: Double, 6: Double, 7: Double, 8: Double
    }
    COLUMN_CRYPTO_META_DATA { 1: EMPTY, 2: ENCRYPTION_WITH_COLUMN_KEY }
    ENCRYPTION_WITH_COLUMN_KEY { 1: List(&Binary), 2: Binary }
    KEY_VALUE { 1: Binary, 2: Binary }
    COLUMN_ORDER { 1: EMPTY, 2: EMPTY, 3: EMPTY }
    ENCRYPTION_ALGORITHM { 1: AES_GCM, 2: AES_GCM }
    AES_GCM { 1: Binary, 2: Binary, 3: Bool }
    PAGE_HEADER {
        1: I32, 2: I32, 3: I32, 4: I32, 5: DATA_PAGE_HEADER, 6: EMPTY, 7: DICTIONARY_PAGE_HEADER, 8: DATA_PAGE_HEADER_V2
    }
    DATA_PAGE_HEADER { 1: I32, 2: I32, 3: I32, 4: I32, 5: STATISTICS }
    DICTIONARY_PAGE_HEADER { 1: I32, 2: I32, 3: Bool }
    DATA_PAGE_HEADER_V2 { 1: I32, 2: I32, 3: I32, 4: I32, 5: I32, 6: I32, 7: Bool, 8: STATISTICS }
}
