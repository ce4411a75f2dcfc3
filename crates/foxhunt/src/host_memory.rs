//! How much memory this process can still have: what the machine has free, and every limit laid on the process.
//!
//! Read from `/proc` and the control groups of Linux. Elsewhere the answer is that it is not known.

use std::fs;
use std::path::Path;

/// Bytes that can still be taken, by the tightest of the limits that can be read; none when none can.
pub(crate) fn free() -> Option<u64> {
    free_in(Path::new("/"))
}

/// Bytes of this process that are in memory, where the system tells.
pub(crate) fn resident() -> Option<u64> {
    kib(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// As [`free`], with the files of the system below `root`.
fn free_in(root: &Path) -> Option<u64> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let machine = read("proc/meminfo").and_then(|text| kib(&text, "MemAvailable:"));
    let process = read("proc/self/status").zip(read("proc/self/limits")).and_then(|(status, limits)| {
        let space = left(soft_limit(&limits, "Max address space"), kib(&status, "VmSize:"));
        let data = left(soft_limit(&limits, "Max data size"), kib(&status, "VmData:"));
        [space, data].into_iter().flatten().min()
    });
    [machine, process, groups(root)].into_iter().flatten().min()
}

/// What the control groups of the process leave, from its own up to the root of the hierarchy.
fn groups(root: &Path) -> Option<u64> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    own.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            // Version 2 names no controller; version 1 has a hierarchy for memory.
            let unified = controllers.is_empty();
            if !unified && !controllers.split(',').any(|name| name == "memory") {
                return None;
            }
            let mount = root.join(if unified { "sys/fs/cgroup" } else { "sys/fs/cgroup/memory" });
            let folder = mount.join(path.trim_start_matches('/'));
            // In a container the path can be that of the host; then only the root of the mount is there.
            folder
                .ancestors()
                .take_while(|at| at.starts_with(&mount))
                .filter_map(|at| group(at, unified))
                .min()
        })
        .min()
}

/// What one control group leaves. Pages of files that can be dropped at once do not count as used.
fn group(folder: &Path, unified: bool) -> Option<u64> {
    let [limit, usage, dropped] = if unified {
        ["memory.max", "memory.current", "inactive_file "]
    } else {
        ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "]
    };
    let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let dropped = stat.lines().find_map(|line| line.strip_prefix(dropped)?.trim().parse::<u64>().ok());
    left(number(limit), Some(number(usage)?.saturating_sub(dropped.unwrap_or(0))))
}

fn left(limit: Option<u64>, used: Option<u64>) -> Option<u64> {
    Some(limit?.saturating_sub(used?))
}

/// The value of a line `key   123 kB`, in bytes.
fn kib(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The first number behind a name in `/proc/self/limits`; none when it is unlimited.
fn soft_limit(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max data size             unlimited            unlimited            bytes     \n\
        Max address space         SPACE            unlimited            bytes     \n";

    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_limit_counts() {
        let free = |more: &[(&str, &str)], space: &str| {
            let limits = LIMITS.replace("SPACE", space);
            let mut files = vec![
                ("proc/meminfo", "MemTotal:  900 kB\nMemFree:  5 kB\nMemAvailable:     800 kB\n"),
                ("proc/self/status", "Name:\tx\nVmSize:\t     100 kB\nVmData:\t  7 kB\n"),
                ("proc/self/limits", &limits),
            ];
            files.extend_from_slice(more);
            free_in(system(&files).path()).unwrap()
        };
        assert_eq!(free(&[], "unlimited"), 800 << 10);
        assert_eq!(free(&[], "512000"), 400 << 10);
        assert_eq!(free(&[], "1024"), 0, "already past it");
        // Version 2: the group itself has no limit, the one above it has.
        let nested = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "1000\n"),
            ("sys/fs/cgroup/a/memory.max", "300000\n"),
            ("sys/fs/cgroup/a/memory.current", "250000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 9\ninactive_file 50000\n"),
        ];
        assert_eq!(free(&nested, "unlimited"), 100_000);
        // Version 1 in a container: only the mount is there.
        let old = [
            ("proc/self/cgroup", "5:cpu:/docker/x\n4:memory:/docker/x\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "200000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "150000\n"),
        ];
        assert_eq!(free(&old, "unlimited"), 50_000);
    }

    #[test]
    fn nothing_to_read_is_not_known() {
        assert_eq!(free_in(system(&[]).path()), None);
        if cfg!(target_os = "linux") {
            assert!(free().is_some_and(|bytes| bytes > 1 << 20), "{:?}", free());
        }
    }
}
