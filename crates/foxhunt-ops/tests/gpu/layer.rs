//! The raw layer on a device: copies, graphs, pinned memory, faults, memory that cannot be had.

use foxhunt_cuda::nvrtc::{Program, compile, target_of};
use foxhunt_cuda::{CudaError, Device, Kernel, Launch, MappedBuffer, Module, Stream, driver_calls};

use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 5] = [
    ("layer_copies_every_size", copies),
    ("layer_graph_equals_eager_and_owns_its_buffers", graph),
    ("layer_pinned_memory_is_polled_without_calls", pinned),
    ("layer_allocation_failure_names_the_bytes", too_large),
    ("layer_fault_names_the_kernel_and_ends_nothing_else", fault),
];

const SOURCE: &str = r#"
extern "C" __global__ void add_one(unsigned int* x, unsigned int n) {
  unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}
extern "C" __global__ void report(unsigned int* out, unsigned int value) {
  __threadfence_system();
  *(volatile unsigned int*)out = value;
}
extern "C" __global__ void out_of_bounds(unsigned int* x) { x[1ull << 40] = 1; }
"#;

fn kernel(stream: &Stream, symbol: &'static str) -> Kernel {
    let target = target_of(stream.device().info().compute_capability);
    let image = compile(&Program::new("layer_test.cu", SOURCE), &target, None).unwrap();
    Module::load(stream.device(), &image).unwrap().kernel(symbol).unwrap()
}

/// Cases D01, D02, D05: what goes up comes down, at awkward sizes; nothing is launched for zero elements.
fn copies(gpu: &Gpu) {
    let add_one = kernel(&gpu.stream, "add_one");
    for n in [0, 1, 31, 32, 33, 255, 256, 257, 1_000_003] {
        let values: Vec<u32> = (0..n as u32).collect();
        let buffer = gpu.stream.upload_new("values", &values).unwrap();
        let launches = driver_calls().launches;
        let launch = Launch::new(&add_one, (n as u32).div_ceil(256), 256).buffer(&buffer).value(n as u32);
        // SAFETY: add_one(u32*, u32) over a buffer of n words.
        unsafe { launch.launch(&gpu.stream).unwrap() };
        assert_eq!(driver_calls().launches - launches, u64::from(n > 0));
        let got = gpu.stream.download(&buffer).unwrap();
        assert!(got.iter().zip(&values).all(|(a, b)| *a == b + 1) && got.len() == n);
    }
    let mut short = gpu.stream.zeros::<u32>("short", 3).unwrap();
    let error = gpu.stream.upload(&mut short, &[1, 2, 3, 4]).unwrap_err();
    assert_eq!(error, CudaError::Length { what: "short", got: 3, expected: 4 });
}

/// Case D04: a graph replays what was captured, holds its memory, and leaves no error behind when it goes.
fn graph(gpu: &Gpu) {
    let add_one = kernel(&gpu.stream, "add_one");
    let buffer = gpu.stream.zeros::<u32>("counter", 100).unwrap();
    let launch = |stream: &Stream| {
        let launch = Launch::new(&add_one, 1, 128).buffer(&buffer).value(100_u32);
        // SAFETY: add_one(u32*, u32) over a buffer of 100 words.
        unsafe { launch.launch(stream) }
    };
    let mut graph = gpu
        .stream
        .capture(|stream| {
            launch(stream)?;
            launch(stream)?;
            assert!(matches!(stream.zeros::<u32>("no", 1), Err(CudaError::Capturing { .. })));
            assert!(matches!(stream.synchronise(), Err(CudaError::Capturing { .. })));
            Ok::<(), CudaError>(())
        })
        .unwrap();
    assert_eq!(graph.buffers_kept(), 1);
    assert_eq!(gpu.stream.download(&buffer).unwrap()[0], 0, "capture runs nothing");
    for _ in 0..5 {
        graph.launch(&gpu.stream).unwrap();
    }
    launch(&gpu.stream).unwrap();
    assert!(gpu.stream.download(&buffer).unwrap().iter().all(|&x| x == 11));
    let frees = driver_calls().frees;
    drop(buffer);
    assert_eq!(driver_calls().frees, frees, "the graph still holds the buffer");
    graph.launch(&gpu.stream).unwrap();
    gpu.stream.synchronise().unwrap();
    drop(graph);
    assert_eq!(driver_calls().frees, frees + 1);
    gpu.stream.zeros::<u32>("four bytes", 1).unwrap();
    let failed = gpu.stream.capture(|_| Err(CudaError::Capturing { call: "told so" }));
    assert!(matches!(failed, Err(CudaError::Capturing { call: "told so" })));
    gpu.stream.synchronise().unwrap();
}

/// The host sees what a kernel wrote to mapped memory without a driver call.
fn pinned(gpu: &Gpu) {
    let report = kernel(&gpu.stream, "report");
    let mut word = MappedBuffer::<u32>::zeros(&gpu.device, "word", 1).unwrap();
    word.write(0, 5);
    assert_eq!((word.read(0), word.read(1)), (Some(5), None));
    let launch = Launch::new(&report, 1, 1).value(word.ptr()).value(77_u32);
    // SAFETY: report(u32*, u32) writes one word of mapped memory, which outlives the poll below.
    unsafe { launch.launch(&gpu.stream).unwrap() };
    let before = driver_calls();
    let start = std::time::Instant::now();
    while word.read(0) != Some(77) {
        assert!(start.elapsed().as_secs() < 20, "the word never came");
        std::hint::spin_loop();
    }
    assert_eq!(driver_calls(), before);
}

/// Memory that cannot be had is an error with the bytes asked and free, and the next allocation works.
fn too_large(gpu: &Gpu) {
    for n in [1_usize << 40, usize::MAX] {
        match gpu.stream.zeros::<f32>("an absurd ring", n) {
            Err(CudaError::OutOfMemory { what: "an absurd ring", bytes, free }) => assert!(bytes > free),
            other => unreachable!("{other:?}"),
        }
    }
    gpu.stream.zeros::<f32>("a small one", 10).unwrap();
}

/// Case D07, in a child process because it costs the context: the first error names the kernel, later calls return the
/// same one, dropping everything is quiet, and the exit code is not 0.
fn fault(gpu: &Gpu) {
    if gpu.small {
        println!("       (left out under the sanitizer)");
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .arg("--break-device")
        .env("CUDA_COREDUMP_ENABLE", "0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert_eq!(child.status.code(), Some(3), "{text}{}", String::from_utf8_lossy(&child.stderr));
    assert!(text.contains("out_of_bounds") && text.contains("same error again"), "{text}");
}

/// The child half of `fault`.
pub(crate) fn break_device() -> i32 {
    let device = Device::open(0).unwrap();
    let stream = device.stream().unwrap();
    let buffer = stream.zeros::<u32>("word", 1).unwrap();
    let kernel = kernel(&stream, "out_of_bounds");
    let launch = Launch::new(&kernel, 1, 1).buffer(&buffer);
    // SAFETY: on purpose not safe: it writes far outside, in a process made to be broken.
    unsafe { launch.launch(&stream).unwrap() };
    let first = stream.synchronise().unwrap_err();
    println!("{first}");
    let again = stream.download(&buffer).unwrap_err();
    if first == again && stream.zeros::<u32>("more", 1).unwrap_err() == first {
        println!("same error again");
    }
    3
}
