use foxhunt_core::Head;
use foxhunt_core::settings::ReplayStorage;
use foxhunt_cuda::CudaError;
use foxhunt_cuda::nvrtc::compile;

/// The kernels compile for the oldest and the newest target; needs NVRTC, no device. `cargo xtask kernels` covers every
/// target.
#[test]
fn kernels_compile() {
    let mut programs = vec![crate::select_actions::cuda::program()];
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        programs.extend(
            [ReplayStorage::Rows, ReplayStorage::Compact].map(|form| super::cuda::program(head, form)),
        );
    }
    for program in programs {
        for target in ["sm_75", "sm_100"] {
            match compile(&program, target, None) {
                Err(CudaError::NoCompiler { .. }) => {
                    assert!(std::env::var_os("FOXHUNT_REQUIRE_NVRTC").is_none(), "NVRTC is required");
                    println!("SKIP: no NVRTC");
                    return;
                }
                Err(error) => panic!("{error}"),
                Ok(image) => assert!(image.bytes().len() > 1000),
            }
        }
    }
}
