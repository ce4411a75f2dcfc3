//! Large zeroed arrays on huge pages where the system has them.
//!
//! A replay memory is read at random over hundreds of megabytes. With pages of 4 KiB nearly every row read misses
//! the TLB as well as the caches; pages of 2 MiB take that half away. The system is asked, not relied on: without
//! huge pages the array works the same. It never grows.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use memmap2::MmapMut;

use crate::error::OpError;

/// A fixed number of values of type `T`, aligned to a page, all memory taken and touched.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    map: MmapMut,
    values: PhantomData<T>,
}

impl<T: Pod> Pages<T> {
    /// `n` zeros, `n` at least 1.
    pub(crate) fn zeroed(n: usize, what: &'static str) -> Result<Self, OpError> {
        let bytes = (n as u64).saturating_mul(size_of::<T>() as u64);
        let refused = OpError::HostMemory { what, bytes };
        // A slice cannot be longer than isize::MAX bytes.
        let len = usize::try_from(bytes).ok().filter(|&len| isize::try_from(len).is_ok());
        let mut map = len.and_then(|len| MmapMut::map_anon(len).ok()).ok_or(refused)?;
        #[cfg(target_os = "linux")]
        if map.advise(memmap2::Advice::HugePage).is_err() {
            // A kernel without huge pages: slower, not wrong.
        }
        map.fill(0);
        Ok(Self { map, values: PhantomData })
    }
}

impl<T: Pod> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map)
    }
}

impl<T: Pod + PartialEq> PartialEq for Pages<T> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl<T: Pod> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map)
    }
}
