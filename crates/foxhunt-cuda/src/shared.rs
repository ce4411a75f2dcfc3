//! Structs that Rust and CUDA share, written once.
//!
//! [`shared_struct!`](crate::shared_struct) makes the Rust side and the CUDA text of the same struct, with asserts
//! compiled on both sides that fix the size of every field and, as there is no padding, its offset.

use crate::DevicePtr;

/// A type that has a CUDA name.
pub trait CudaType {
    /// The CUDA declaration of a variable of this type, without the semicolon.
    fn declare(name: &str) -> String;
}

macro_rules! plain {
    ($($rust:ty => $cuda:literal),+) => {
        $(impl CudaType for $rust {
            fn declare(name: &str) -> String {
                format!(concat!($cuda, " {}"), name)
            }
        })+
    };
}

plain!(u8 => "unsigned char", u32 => "unsigned int", i32 => "int", u64 => "unsigned long long", f32 => "float", f64 => "double");

impl<T: CudaType, const N: usize> CudaType for [T; N] {
    fn declare(name: &str) -> String {
        T::declare(&format!("{name}[{N}]"))
    }
}

impl<T: CudaType> CudaType for DevicePtr<T> {
    fn declare(name: &str) -> String {
        // An array of pointers is `T* name[N]`, which this order gives.
        T::declare(&format!("*{name}"))
    }
}

/// Defines a struct for both sides. All fields must be [`CudaType`] and `Pod`; padding does not compile.
///
/// `Name::cuda_source()` gives the CUDA text: the struct and static asserts on its size and the size of every field.
#[macro_export]
macro_rules! shared_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$fmeta:meta])* $fvis:vis $field:ident: $ty:ty),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        $vis struct $name { $($(#[$fmeta])* $fvis $field: $ty),+ }

        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$ty>())+, "a shared struct has padding");
        // SAFETY: every field is zeroable (it is Pod, checked below).
        unsafe impl $crate::bytemuck::Zeroable for $name {}
        // SAFETY: repr(C), no padding by the assert above, every field Pod by the function below.
        unsafe impl $crate::bytemuck::Pod for $name {}
        const _: fn() = || {
            fn pod<T: $crate::bytemuck::Pod>() {}
            $(pod::<$ty>();)+
        };

        impl $crate::CudaType for $name {
            fn declare(name: &str) -> String {
                format!(concat!(stringify!($name), " {}"), name)
            }
        }

        impl $name {
            /// The same struct in CUDA, with asserts on all sizes.
            #[must_use]
            $vis fn cuda_source() -> String {
                let mut text = concat!("struct ", stringify!($name), " {\n").to_owned();
                $(text.push_str(&format!("  {};\n", <$ty as $crate::CudaType>::declare(stringify!($field))));)+
                text.push_str("};\n");
                text.push_str(&format!("static_assert(sizeof({}) == {}, \"size\");\n", stringify!($name), size_of::<$name>()));
                // Fields in one order, sizes equal one by one and in sum: no padding, so equal offsets. NVRTC has no
                // offsetof that is a constant.
                $(text.push_str(&format!(
                    "static_assert(sizeof({0}::{1}) == {2}, \"{1}\");\n",
                    stringify!($name), stringify!($field), size_of::<$ty>()
                ));)+
                text
            }
        }
    };
}
