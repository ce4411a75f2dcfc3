use foxhunt_core::Head;
use foxhunt_cuda::CudaError;
use foxhunt_cuda::nvrtc::compile;

/// The kernels compile for the oldest and the newest target; needs NVRTC, no device. `cargo xtask kernels` covers every
/// target.
#[test]
fn kernels_compile() {
    let heads = [Head::Exposure, Head::Factored, Head::Branching];
    for program in heads.map(super::cuda::program).into_iter().chain([crate::select_actions::cuda::program()])
    {
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
