//! What is in our memory stays there.

use rustix::process::{Resource, Rlimit, setrlimit};

/// From here on this process leaves no core dump, nobody else's process may look into its memory or its environment, and
/// neither it nor its children, engines above all, leave a core file. Not being allowed to say so is no reason not to work.
pub fn keep_to_ourselves() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    _ = setrlimit(Resource::Core, none);
    // A limit is not asked where dumps go to a program.
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}
