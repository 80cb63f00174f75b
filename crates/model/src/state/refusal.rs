//! A recorded refusal: engines only show a status code, so the reason is stored.
//!
//! Not here: recording it and storing its body (`store::state::refusals`), how many bodies are kept (`retention`).

use jiff::Timestamp;

use super::StateName;
use crate::base::ids::RunId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    pub id: i64,
    pub state: StateName,
    pub method: String,
    pub reason: String,
    pub run: Option<RunId>,
    pub lock_id: Option<String>,
    /// The path of the sealed body in the home.
    pub kept: Option<String>,
    pub at: Timestamp,
    /// When the body was marked for removal.
    pub let_go: Option<Timestamp>,
}
