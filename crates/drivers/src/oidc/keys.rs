//! The public keys of an issuer that can sign accepted tokens.

use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct KeySet {
    keys: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Key {
    kid: String,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    #[serde(flatten)]
    numbers: Numbers,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kty")]
enum Numbers {
    #[serde(rename = "RSA")]
    Rsa { n: String, e: String },
    #[serde(rename = "EC")]
    Curve { crv: String, x: String, y: String },
}

impl KeySet {
    /// The key with this id, if it suits the algorithm.
    pub(super) fn find(&self, name: &str, algorithm: Algorithm) -> Option<DecodingKey> {
        // Other keys may be of unknown types.
        let keys = self.keys.iter();
        let mut keys = keys.filter_map(|key| serde_json::from_value::<Key>(key.clone()).ok());
        keys.find_map(|key| (key.kid == name).then(|| key.decoding(algorithm)).flatten())
    }
}

impl Key {
    fn decoding(&self, algorithm: Algorithm) -> Option<DecodingKey> {
        let signs = self.purpose.as_deref().is_none_or(|word| word == "sig");
        let fits = |word: &str| self.alg.as_deref().is_none_or(|alg| alg == word);
        match &self.numbers {
            Numbers::Rsa { n, e } if algorithm == Algorithm::RS256 && signs && fits("RS256") => {
                DecodingKey::from_rsa_components(n, e).ok()
            }
            Numbers::Curve { crv, x, y }
                if algorithm == Algorithm::ES256 && crv == "P-256" && signs && fits("ES256") =>
            {
                DecodingKey::from_ec_components(x, y).ok()
            }
            Numbers::Rsa { .. } | Numbers::Curve { .. } => None,
        }
    }
}
