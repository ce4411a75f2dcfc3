use crate::{CudaError, Device, DevicePtr, Shape, driver_calls, probe};

crate::shared_struct! {
    /// One field of each kind.
    struct Mixed {
        first: u64,
        pointers: [DevicePtr<f32>; 3],
        small: [u32; 2],
        scale: f32,
        last: u32,
    }
}

#[test]
fn shared_struct_has_the_same_layout_on_both_sides() {
    let text = Mixed::cuda_source();
    for line in [
        "unsigned long long first;",
        "float *pointers[3];",
        "unsigned int small[2];",
        "static_assert(sizeof(Mixed) == 48",
        "static_assert(sizeof(Mixed::pointers) == 24",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    // A distinct value in each field lands at the offset that the CUDA side asserts.
    let pointers = [DevicePtr::at(2), DevicePtr::at(3), DevicePtr::at(4)];
    let mixed = Mixed { first: 1, pointers, small: [5, 6], scale: f32::from_bits(7), last: 8 };
    let words: &[u32; 12] = bytemuck::cast_ref(&mixed);
    assert_eq!(words, &[1, 0, 2, 0, 3, 0, 4, 0, 5, 6, 7, 8]);
    assert_eq!(mixed.first + mixed.pointers[2].address + u64::from(mixed.small[1] + mixed.last), 19);
    assert_eq!(mixed.scale.to_bits(), 7);
}

/// Case D11: sizes that do not fit are seen, not wrapped.
#[test]
fn shapes() {
    assert_eq!(Shape::new(&[3, 4]).len(), 12);
    assert_eq!(Shape::new(&[usize::MAX, 2]).len(), usize::MAX);
    assert_eq!(Shape::from([0, 7]).len(), 0);
    assert!(Shape::from([0, 7]).is_empty());
    assert_eq!(DevicePtr::<f32>::at(16).offset((1 << 31) + 512).address, 16 + 4 * ((1_u64 << 31) + 512));
}

/// Without a driver or a device the answer is a value with one clear line, not a panic.
#[test]
fn a_machine_without_a_gpu_gets_one_clear_line() {
    match probe(0) {
        Ok(info) => assert!(info.multiprocessors > 0),
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1);
            assert!(matches!(
                error,
                CudaError::NoDriver | CudaError::NoDevice { .. } | CudaError::Driver { .. }
            ));
            println!("SKIP: {error}");
        }
    }
    assert!(matches!(
        Device::open(99),
        Err(CudaError::NoDriver | CudaError::NoDevice { ordinal: 99, .. } | CudaError::Driver { .. })
    ));
    assert_eq!(driver_calls() - driver_calls(), Default::default());
}
