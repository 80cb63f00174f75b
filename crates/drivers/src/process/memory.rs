//! Protects our memory from other processes and core dumps.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Disables core dumps for this process and its children (engines above all), and denies other processes access to
/// its memory and environment. A failure is ignored.
pub fn protect_memory() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    _ = setrlimit(Resource::Core, none);
    // The limit does not apply where dumps are piped to a program.
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}
