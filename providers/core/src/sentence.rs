//! `Debug` of errors.

/// Implements `Debug` of an error: `{:?}` prints the sentence of `Display`, since a `main` that
/// returns an error prints it so; `{:#?}` prints the fields.
#[doc(hidden)]
#[macro_export]
macro_rules! sentence_in_debug {
    (enum $Type:ident {
        $($Variant:ident $({ $($field:ident),* })? $(($inner:ident))?,)*
    }) => {
        impl std::fmt::Debug for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if !f.alternate() {
                    return std::fmt::Display::fmt(self, f);
                }
                match self {
                    $(Self::$Variant $({ $($field),* })? $(($inner))? => {
                        $crate::sentence_in_debug!(
                            @fields f, $Variant $({ $($field),* })? $(($inner))?
                        )
                    })*
                }
            }
        }
    };
    (struct $Type:ident { $($field:ident),* }) => {
        impl std::fmt::Debug for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if !f.alternate() {
                    return std::fmt::Display::fmt(self, f);
                }
                let Self { $($field),* } = self;
                $crate::sentence_in_debug!(@fields f, $Type { $($field),* })
            }
        }
    };
    (@fields $f:ident, $name:ident) => { $f.write_str(stringify!($name)) };
    (@fields $f:ident, $name:ident ($inner:ident)) => {
        $f.debug_tuple(stringify!($name)).field($inner).finish()
    };
    (@fields $f:ident, $name:ident { $($field:ident),* }) => {
        $f.debug_struct(stringify!($name))$(.field(stringify!($field), $field))*.finish()
    };
}
