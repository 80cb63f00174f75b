//! Patterns with `*` over addresses and types. Brackets are literal, because addresses contain them.

use crate::base::error::{ErrorKind, Explain};
use globset::{GlobBuilder, GlobMatcher};

#[derive(Clone, Debug)]
pub struct Glob(GlobMatcher);

#[derive(Clone, Debug, thiserror::Error)]
#[error("`{glob}` is not a pattern")]
pub struct InvalidGlob {
    glob: String,
    source: globset::Error,
}

impl Explain for InvalidGlob {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

impl Glob {
    pub fn parse(word: &str) -> Result<Self, InvalidGlob> {
        let literal = word.replace('[', "\\[").replace(']', "\\]");
        let built = GlobBuilder::new(&literal).backslash_escape(true).build();
        built
            .map(|glob| Self(glob.compile_matcher()))
            .map_err(|source| InvalidGlob {
                glob: word.to_owned(),
                source,
            })
    }

    pub fn fits(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_are_part_of_addresses() {
        let fits = |glob: &str, text: &str| Glob::parse(glob).unwrap().fits(text);
        assert!(fits("aws_instance.web[*]", "aws_instance.web[0]"));
        assert!(fits("*.web[\"a\"]", "module.x.aws_instance.web[\"a\"]"));
        assert!(!fits("aws_instance.web[0]", "aws_instance.web0"));
        assert!(!fits("aws_*", "azurerm_subnet"));
        assert!(Glob::parse("{a").is_err());
    }
}
