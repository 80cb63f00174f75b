//! The real Proxmox provider, in a mirror for OpenTofu: it can plan without a Proxmox server.

use std::path::PathBuf;
use std::{env, fs};

use crate::TestTerrane;

impl TestTerrane {
    /// Lets OpenTofu find `bpg/proxmox`. `scripts/services.sh proxmox` installs it.
    #[must_use]
    pub fn with_proxmox(self) -> Self {
        let mirror = env::var_os("TERRANE_TEST_PROXMOX").map(PathBuf::from);
        let mirror = mirror.filter(|dir| dir.is_dir());
        let mirror = mirror
            .unwrap_or_else(|| panic!("no Proxmox provider: run `make tools`, or `make test`"));
        let text = format!(
            "provider_installation {{\n  filesystem_mirror {{\n    path = \"{}\"\n  }}\n}}\n",
            mirror.display()
        );
        fs::write(self.root().join("user/.tofurc"), &text).expect("a file");
        self
    }
}
