//! The embedded demo model: a dictionary with GLM-5.2's architecture (`tests/models/README.md`).

use crate::run::ModelSource;

#[cfg(feature = "demo")]
macro_rules! file {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../tests/models/dictionary-glm52-int4/", $name)) as &[u8])
    };
}

/// Starts at a page, as a mapped file does, so that the weights in it are aligned.
#[cfg(feature = "demo")]
#[repr(C, align(4096))]
struct Pages<T: ?Sized>(T);

#[cfg(feature = "demo")]
static WEIGHTS: &Pages<[u8]> = &Pages(*include_bytes!("../../tests/models/dictionary-glm52-int4/model.safetensors"));

/// The model inside this program, if it was built with one.
#[cfg(feature = "demo")]
pub fn source() -> Option<ModelSource> {
    static FILES: [(&str, &[u8]); 5] = [
        file!("config.json"),
        file!("generation_config.json"),
        ("model.safetensors", &WEIGHTS.0),
        file!("tokenizer.json"),
        file!("tokenizer_config.json"),
    ];
    Some(ModelSource::Embedded { label: "the embedded demo model", files: &FILES })
}

#[cfg(not(feature = "demo"))]
pub fn source() -> Option<ModelSource> {
    None
}
