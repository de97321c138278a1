package pipeline

import (
	"slices"
	"strings"

	"watchlab/impls/decode"
	"watchlab/impls/informer"
	"watchlab/loadgen/source"
)

// stack is a whole informer: a variant of the informer pipeline, and the stages before it.
type stack struct {
	name, informer string
	inflate        string // variant of package inflate; empty for the default
	decoder        string // ENCODING is that of the wire
}

// stacks are played if they are named, from the source apiserver.
var stacks = []stack{
	{"clientgo", ClientGoInformer, "", "clientgo-ENCODING"},
	{"clientgo-transform", ClientGoInformer, "", "clientgo-ENCODING-transform"},
	{"clientgo-uncompressed", ClientGoInformer, "none", "clientgo-ENCODING-transform"},
	{"watchlab", informer.DefaultVariant, "members", "shared"},
	{"watchlab-uncompressed", informer.DefaultVariant, "none", "shared"},
	{"watchlab-readonly", informer.DefaultVariant, "members", "shared-readonly"},
}

// Stacks returns the names of whole informers over HTTP: client-go's as it comes, with the transform that strips
// managed fields, and with that and DisableCompression; ours with the reader members and the decoder shared, the
// same with DisableCompression, and with the decoder shared-readonly.
func Stacks() (names []string) {
	for _, s := range stacks {
		names = append(names, s.name)
	}
	return names
}

// stackOf returns the stack that a variant names; that of the informer alone for any other variant.
func stackOf(variant string) stack {
	if at := slices.IndexFunc(stacks, func(s stack) bool { return s.name == variant }); at >= 0 {
		return stacks[at]
	}
	return stack{name: variant, informer: variant}
}

func (s stack) decoderOf(e decode.Encoding) string {
	return strings.ReplaceAll(s.decoder, "ENCODING", string(e))
}

// checkStacks refuses stacks beside other variants, and where nothing is decoded.
func (s *Config) checkStacks() error {
	named := slices.DeleteFunc(slices.Clone(s.Impls), func(v string) bool { return stackOf(v).decoder == "" })
	switch {
	case len(named) == 0:
		return nil
	case s.Pipeline != InformerPipeline || s.Source != source.APIServerName:
		return refuse("stack %s in the %s pipeline from source %s (allowed: the %s pipeline from %s)", named[0], s.Pipeline, s.Source, InformerPipeline, source.APIServerName)
	case len(named) < len(s.Impls) || s.Wire.Decode != "":
		return refuse("stack %s, which has a decoder, beside other variants or another decoder (allowed: %s)", named[0], strings.Join(Stacks(), ", "))
	}
	wire, err := s.Wire.Complete()
	if err != nil {
		return err
	}
	s.Wire.Encoding = wire.Encoding
	for _, name := range named {
		wire.Decode = stackOf(name).decoderOf(wire.Encoding)
		if _, err := wire.Complete(); err != nil {
			return err
		}
	}
	return nil
}
