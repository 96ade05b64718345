package checkpoint

import (
	"fmt"
	"slices"

	"promptfed/models/clip"
	"promptfed/runtime/oneline"
)

// modelTypes lists the model_type values of config.json that were compared with transformers 5.23 (TestArchitectures).
var modelTypes = []string{"clip", "siglip", "chinese_clip", "metaclip_2"}

// unread lists fields of transformers' configurations that do not change the computation of a tower at inference:
// names, types of stored numbers, dropout, initial values, outputs, and defaults of generation (PretrainedConfig of
// 4.16 to 5.23).
var unread = []string{"_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path",
	"architectures", "attention_dropout", "attention_probs_dropout_prob", "attn_implementation", "bad_words_ids",
	"begin_suppress_tokens", "bos_token_id", "chunk_size_feed_forward", "classifier_dropout",
	"cross_attention_hidden_size", "decoder_start_token_id", "diversity_penalty", "do_sample", "dropout", "dtype",
	"early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task",
	"forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing", "hidden_dropout_prob", "id2label",
	"initializer_factor", "initializer_range", "is_encoder_decoder", "label2id", "length_penalty",
	"logit_scale_init_value", "max_length", "min_length", "model_type", "no_repeat_ngram_size", "num_beam_groups",
	"num_beams", "num_return_sequences", "output_attentions", "output_hidden_states", "output_scores", "prefix",
	"problem_type", "remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate",
	"sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss",
	"tie_encoder_decoder", "tie_word_embeddings", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript",
	"transformers_version", "typical_p", "use_bfloat16", "use_cache",
	// of Google's BERT configurations, which transformers does not read
	"directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
	"pooler_type"}

// usual reads the fields that every configuration of transformers may have.
func (f *fields) usual() {
	f.ignore(unread...)
	f.only("pruned_heads", "map[]")
	f.only("is_decoder", "false")
	f.only("add_cross_attention", "false")
	f.only("num_channels", "3")
}

// transformer reads the fields of a tower in configurations of transformers, whose defaults are those of usual.
func (f *fields) transformer(tower tower, usual clip.TextArch) {
	f.usual()
	f.same("hidden_size", tower.width, usual.Width)
	f.same("num_hidden_layers", tower.layers, usual.Layers)
	f.same("intermediate_size", tower.units, usual.Units())
	act := read(f, "hidden_act", usual.Activation)
	if act == "gelu_pytorch_tanh" {
		act = GELUTanh
	}

	tower.set(read(f, "num_attention_heads", usual.Heads), act, read(f, "layer_norm_eps", usual.Eps))
	switch {
	case !slices.Contains(activations, act):
		f.fail("hidden_act %q is not supported, want one of %v", oneline.Short(act), activations)
	case *tower.heads < 1 || !(*tower.epsilon > 0):
		f.fail("num_attention_heads is %d and layer_norm_eps %g, want positive numbers", *tower.heads, *tower.epsilon)
	}
}

// base returns the defaults of most towers in transformers.
func base(activation string, epsilon float64) clip.TextArch {
	return clip.TextArch{Width: 768, Layers: 12, Heads: 12, Activation: activation, Eps: epsilon}
}

// bert reads a BertConfig, RobertaConfig or XLMRobertaConfig; positions is the number of its positions.
func (f *fields) bert(arch *Arch, positions int) {
	pad := 0
	if arch.RoBERTa {
		pad = 1
	}

	f.transformer(arch.textTower(), base(GELU, 1e-12))
	f.same("vocab_size", arch.Vocab, 0)
	f.same("max_position_embeddings", positions, 0)
	f.only("position_embedding_type", "absolute")
	f.ignore("type_vocab_size", "eos_token_id")
	if arch.PadToken = read(f, "pad_token_id", pad); arch.RoBERTa && arch.PadToken != pad {
		f.fail("pad_token_id is %d, which moves the positions of a RoBERTa, want %d", arch.PadToken, pad)
	}
}

// fromHuggingFace reads the config.json of a CLIP, SigLIP or Chinese-CLIP. Missing fields have the defaults of
// transformers' configurations; text_config_dict and vision_config_dict of old files replace text_config and
// vision_config.
func fromHuggingFace(ckpt *Checkpoint, scheme scheme, arch *Arch) error {
	top := fieldsOf(huggingfaceConfig, ckpt.config)
	part := func(key string) *fields {
		whole, old := top.object(key), top.object(key+"_dict")
		if top.has(key + "_dict") {
			return old
		}
		return whole
	}

	text, vision := part("text_config"), part("vision_config")
	kind := read(top, "model_type", "clip")
	top.usual()
	vision.ignore("pad_token_id", "eos_token_id")
	patch := 32
	switch {
	case arch.Vision.ResNet():
		arch.imageTower().set(headsOf(arch.Vision.Width), "", normEpsilon)
		vision.usual()
		arch.margin(vision, arch.Vision.Image)
		vision.stages("layers", arch)
		vision.stages("depths", arch)
	case scheme.siglip:
		vision.transformer(arch.imageTower(), base(GELUTanh, 1e-6))
		vision.only("vision_use_head", "true")
		patch = 16
	default:
		vision.transformer(arch.imageTower(), base(QuickGELU, 1e-5))
		vision.ignore("projection_dim")
	}

	if !arch.Vision.ResNet() {
		vision.same("patch_size", arch.Vision.Patch, patch)
		arch.margin(vision, 224)
	}

	switch {
	case scheme.bert:
		text.bert(arch, ckpt.handles[scheme.textPositions].Shape[0])
		text.ignore("projection_dim")
		arch.PadToken = AnyToken // the tokenizer states the masked token
	case scheme.siglip:
		text.transformer(arch.textTower(), base(GELUTanh, 1e-6))
		text.same("vocab_size", arch.Vocab, 32000)
		text.same("max_position_embeddings", arch.Text.Context, 64)
		text.same("projection_size", arch.Text.EmbedDim, arch.Text.Width)
		text.ignore("pad_token_id", "eos_token_id")
	default:
		text.transformer(arch.textTower(), clip.TextArch{Width: 512, Layers: 12, Heads: 8, Activation: QuickGELU,
			Eps: 1e-5})
		text.same("vocab_size", arch.Vocab, 49408)
		text.same("max_position_embeddings", arch.Text.Context, 77)
		text.ignore("projection_dim", "pad_token_id")
		if arch.EndToken = read(text, "eos_token_id", 49407); arch.EndToken == 2 && kind != "metaclip_2" {
			arch.EndToken = LargestToken // in old files, CLIPTextModel reads at the largest id
		}
	}

	if !scheme.siglip {
		top.same("projection_dim", arch.Text.EmbedDim, 512)
	}

	top.ignore("initializer_range", "pad_token_id", "eos_token_id")
	return done(text, vision, top)
}

// stages compares the blocks of a ResNet's stages with a configuration, if it lists them.
func (f *fields) stages(key string, a *Arch) {
	f.asked[key] = true
	if f.has(key) && fmt.Sprint(f.values[key]) != fmt.Sprint(a.Vision.Stages) {
		f.fail("%s is %s, but the weights say %v", key, oneline.Short(fmt.Sprint(f.values[key])), a.Vision.Stages)
	}
}
