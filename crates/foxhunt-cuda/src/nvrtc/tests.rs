use super::{Cache, Program, compile, options, target_of};
use crate::CudaError;

fn program(body: &str) -> Program {
    Program::new(
        "probe.cu",
        &format!("#include \"answer.cuh\"\nextern \"C\" __global__ void probe(int* out) {{ {body} }}"),
    )
    .header("answer.cuh", "#define ANSWER (WHOLE / 2)")
    .define("WHOLE", 84)
}

/// Every part of a program is in the key, and parts cannot run into one another.
#[test]
fn key_sees_everything() {
    let base = program("*out = ANSWER;");
    let key = |p: &Program, target: &str, version| super::cache::key(p, &options(p, target), version);
    let of_base = key(&base, "sm_90a", (13, 0));
    assert_eq!(of_base, key(&base.clone(), "sm_90a", (13, 0)));
    let mut renamed = base.clone();
    renamed.name = "other.cu".to_owned();
    let others = [
        key(&program("*out = 1;"), "sm_90a", (13, 0)),
        key(&base.clone().header("x.cuh", ""), "sm_90a", (13, 0)),
        key(&base.clone().define("N", 1), "sm_90a", (13, 0)),
        key(&base, "sm_80", (13, 0)),
        key(&base, "sm_90a", (13, 1)),
        key(&renamed, "sm_90a", (13, 0)),
    ];
    for (i, other) in others.iter().enumerate() {
        assert_ne!(&of_base, other, "change {i}");
    }
}

/// A torn, foreign or empty file counts as absent; a good one is read back.
#[test]
fn cache_survives_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(&dir.path().join("kernels"));
    assert_eq!(cache.load("k"), None);
    cache.store("k", b"code of some length");
    assert_eq!(cache.load("k").as_deref(), Some(&b"code of some length"[..]));
    let file = cache.dir().join("k.bin");
    let whole = std::fs::read(&file).unwrap();
    for cut in [0, 1, 8, 20, whole.len() - 1] {
        std::fs::write(&file, &whole[..cut]).unwrap();
        assert_eq!(cache.load("k"), None, "cut at {cut}");
    }
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&file, flipped).unwrap();
    assert_eq!(cache.load("k"), None);
    cache.store("k", b"again");
    assert_eq!(cache.load("k").as_deref(), Some(&b"again"[..]));
    assert_eq!(std::fs::read_dir(cache.dir()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn targets() {
    assert_eq!(target_of((9, 0)), "sm_90a");
    assert_eq!(target_of((7, 5)), "sm_75");
    assert_eq!(target_of((10, 0)), "sm_100a");
}

/// Needs NVRTC but no device; without it the test says so. The log names the file and the line.
#[test]
fn compiles_with_headers_and_reports_errors() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    match compile(&program("*out = ANSWER;"), "sm_80", Some(&cache)) {
        Err(CudaError::NoCompiler { .. }) => {
            assert!(std::env::var_os("FOXHUNT_REQUIRE_NVRTC").is_none(), "NVRTC is required");
            println!("SKIP: no NVRTC");
            return;
        }
        image => assert!(image.unwrap().bytes().len() > 100),
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    // A corrupt cache falls back to compiling.
    let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, b"junk").unwrap();
    assert!(compile(&program("*out = ANSWER;"), "sm_80", Some(&cache)).unwrap().bytes().len() > 100);
    let Err(CudaError::Compile { file, log, .. }) =
        compile(&program("*out = ANSWER\n;nonsense"), "sm_80", None)
    else {
        panic!("nonsense compiled");
    };
    assert_eq!(file, "probe.cu");
    assert!(log.contains("probe.cu(3)"), "{log}");
}
