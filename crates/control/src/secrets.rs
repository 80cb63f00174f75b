//! Values from the side of the requester, and files of secrets.
//!
//! Not here: masking (`model::base::masking`), where secrets are in states (`state::secret_paths`).

pub mod caller_env;
pub mod secret_files;
