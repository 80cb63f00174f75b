//! Fetches OIDC discovery and follows the authorisation redirect up to the login page.

use std::time::Duration;

use model::stage::gate::{
    CheckResult, Discovery, HttpReply, OidcEvidence, OidcGate, OidcKey, withheld_query,
};
use reqwest::{Client, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Deadline, Probes, http};

/// The maximum number of redirects between an application and its issuer's login page.
const MOST_HOPS: usize = 10;

pub async fn look(probes: &Probes, gate: &OidcGate, limit: Duration) -> CheckResult {
    let deadline = Deadline::after(limit);
    let client = match probes.client(gate.ca.as_deref()) {
        Ok(client) => client,
        Err(why) => return CheckResult::impossible(why),
    };
    let visit = OidcProbe {
        probes,
        client,
        deadline,
    };
    let mut seen = OidcEvidence {
        issuer: gate.issuer.clone(),
        ..OidcEvidence::default()
    };
    match visit.document::<Discovery>(&gate.discovery_url()).await {
        Ok(found) => seen.discovery = Some(found),
        Err(why) => seen.discovery_failed = Some(why),
    }
    if let Some(found) = seen.discovery.clone() {
        match visit.document::<Keys>(&found.jwks_uri).await {
            Ok(found) => seen.keys = Some(found.readable()),
            Err(why) => seen.keys_failed = Some(why),
        }
        if let (Some(login), Some(door)) = (&gate.login_url, &found.authorization_endpoint) {
            visit.go_to_the_door(login, door, &mut seen).await;
        }
    }
    gate.judge(seen)
}

#[derive(Deserialize)]
struct Keys {
    keys: Vec<serde_json::Value>,
}

impl Keys {
    fn readable(self) -> Vec<OidcKey> {
        let keys = self.keys.into_iter().take(20);
        keys.filter_map(|key| serde_json::from_value(key).ok())
            .collect()
    }
}

struct OidcProbe<'a> {
    probes: &'a Probes,
    client: Client,
    deadline: Deadline,
}

impl OidcProbe<'_> {
    async fn document<T: DeserializeOwned>(&self, place: &str) -> Result<T, String> {
        let url = Url::parse(place).map_err(|_| "no address that can be read".to_owned())?;
        let answer = self.get(&url, true).await?;
        if answer.status != 200 {
            return Err(answer.status.to_string());
        }
        let wrong = |err| format!("not the document that is wanted: {err}");
        serde_json::from_slice(&answer.body).map_err(wrong)
    }

    async fn get(&self, url: &Url, wants_body: bool) -> Result<HttpReply, String> {
        let request = self.client.get(url.clone());
        let fetched = self.probes.fetch(request, wants_body, self.deadline).await;
        fetched.map_err(|why| why.words())
    }

    /// Follows redirects, on one scheme, until one leads to the authorization endpoint.
    async fn go_to_the_door(&self, login: &str, door: &str, seen: &mut OidcEvidence) {
        let (Ok(mut here), Ok(door)) = (Url::parse(login), Url::parse(door)) else {
            seen.login_failed = Some("an address that cannot be read".to_owned());
            return;
        };
        for _ in 0..MOST_HOPS {
            seen.hops.push(withheld_query(here.as_str()));
            let answer = match self.get(&here, false).await {
                Ok(answer) => answer,
                Err(why) => {
                    let page = withheld_query(here.as_str());
                    seen.login_failed = Some(format!("{why} from {page}"));
                    return;
                }
            };
            let Some(next) = http::target(&here, &answer) else {
                seen.login_failed = Some(format!(
                    "{} without a redirect from {}",
                    answer.status,
                    withheld_query(here.as_str())
                ));
                return;
            };
            if is_same_page(&next, &door) {
                arrive(&next, seen);
                return;
            }
            if next.scheme() != here.scheme() {
                let page = withheld_query(next.as_str());
                seen.login_failed = Some(format!(
                    "a redirect from {} to {}, which is not followed: {page}",
                    here.scheme(),
                    next.scheme()
                ));
                return;
            }
            // The authorization endpoint of another issuer also ends the search, as a failure.
            let asks_for_a_client = next.query_pairs().any(|(name, _)| name == "client_id");
            if asks_for_a_client && next.origin() != here.origin() && next.origin() != door.origin()
            {
                arrive(&next, seen);
                return;
            }
            here = next;
        }
        seen.login_failed = Some(format!("{MOST_HOPS} redirects, and no end"));
    }
}

fn arrive(door: &Url, seen: &mut OidcEvidence) {
    seen.hops.push(withheld_query(door.as_str()));
    let mut query = door.query_pairs();
    let client = query.find(|(name, _)| name == "client_id");
    seen.client_id = client.map(|(_, value)| value.into_owned());
    let mut bare = door.clone();
    bare.set_query(None);
    bare.set_fragment(None);
    seen.arrived = Some(bare.to_string());
}

fn is_same_page(left: &Url, right: &Url) -> bool {
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    left.origin() == right.origin() && path(left) == path(right)
}
