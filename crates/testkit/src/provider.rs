//! A small provider for tests whose resources are files (`crates/testkit/provider`), in a mirror for both engines.

use std::path::PathBuf;
use std::{env, fs};

use crate::TestTerrane;

impl TestTerrane {
    /// Lets engines find the provider `example.io/test/thing`. `scripts/services.sh provider` installs it.
    #[must_use]
    pub fn with_provider(self) -> Self {
        let mirror = env::var_os("TERRANE_TEST_PROVIDER").map(PathBuf::from);
        let mirror = mirror.filter(|dir| dir.is_dir());
        let mirror = mirror
            .unwrap_or_else(|| panic!("no provider for tests: run `make tools`, or `make test`"));
        let text = format!(
            "provider_installation {{\n  filesystem_mirror {{\n    path    = \"{}\"\n    include = [\"example.io/*/*\"]\n  }}\n}}\n",
            mirror.display()
        );
        for name in [".tofurc", ".terraformrc"] {
            fs::write(self.root().join("user").join(name), &text).expect("a file");
        }
        self
    }
}
