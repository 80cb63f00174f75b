//! The arguments of an engine command that contain a secret: sealed in the spec of its run, and opened when
//! it is carried out.
//!
//! Not here: carrying it out (`runner::exec`, `runner::interactive`).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use model::base::masking::Mask;
use model::run::exec::Exec;
use store::{KeyScope, StoreError};

use crate::Control;

const PURPOSE: &str = "exec-args";

#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenExecError {
    #[error("cannot decrypt the arguments of the command")]
    Unseal(#[source] StoreError),
    #[error("cannot parse the stored arguments of the command")]
    Unreadable,
}

/// The command as it is stored: without the secrets that are known at the request.
pub(crate) async fn sealed(
    control: &Control,
    exec: &Exec,
    mask: &Mask,
) -> Result<Exec, StoreError> {
    let line = exec.to_string();
    let kept = Exec {
        shown: Some(mask.mask_text(&line)),
        reason: exec.reason.as_ref().map(|reason| mask.mask_text(reason)),
        ..exec.clone()
    };
    if kept.shown.as_ref() == Some(&line) {
        return Ok(kept);
    }
    let plain = serde_json::json!(exec.args).to_string().into_bytes();
    let bytes = control
        .store
        .seal(KeyScope::Project, PURPOSE, plain)
        .await?;
    Ok(Exec {
        args: Vec::new(),
        sealed: Some(BASE64_STANDARD.encode(bytes)),
        ..kept
    })
}

/// The command with the arguments for the engine.
pub(crate) async fn opened(control: &Control, exec: &Exec) -> Result<Exec, OpenExecError> {
    let Some(sealed) = &exec.sealed else {
        return Ok(exec.clone());
    };
    let bytes = BASE64_STANDARD.decode(sealed);
    let bytes = bytes.map_err(|_| OpenExecError::Unreadable)?;
    let plain = control
        .store
        .unseal(KeyScope::Project, PURPOSE, bytes)
        .await;
    let plain = plain.map_err(OpenExecError::Unseal)?;
    let args = serde_json::from_slice(&plain).map_err(|_| OpenExecError::Unreadable)?;
    Ok(Exec {
        args,
        ..exec.clone()
    })
}
