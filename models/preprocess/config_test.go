package preprocess

import (
	"encoding/json"
	"testing"

	"promptfed/runtime/goldentest"
)

// TestConfigs: the texts have the forms in which the libraries write these files.
func TestConfigs(t *testing.T) {
	const colours = `"image_mean":[0.48145466,0.4578275,0.40821073],"image_std":[0.26862954,0.26130258,0.27577711]`
	vit := SigLIP(16)
	vit.Resize = Bilinear
	for data, want := range map[string]Preprocess{
		`{"crop_size":224,"do_center_crop":true,"do_normalize":true,"do_resize":true,"resample":3,"size":224,` +
			colours + `}`: CLIP(224),
		`{"rescale_factor":0.00392}`: CLIP(224), `{"rescale_factor":0.00393}`: CLIP(224), // 1/255, rounded down and up
		`{"crop_size":{"height":30,"width":30},"size":{"shortest_edge":30},"rescale_factor":0.00392156862745098,` +
			`"do_rescale":true,` + colours + `}`: CLIP(30),
		`{}`: CLIP(224),
		// to_dict() of the processors, whose other fields have these values
		`{"image_processor_type":"SiglipImageProcessor"}`:                                  SigLIP(224),
		`{"image_processor_type":"ViTImageProcessorFast","size":{"height":16,"width":16}}`: vit,
		`{"size":{"height":16,"width":16},"image_mean":[0.5,0.5,0.5],"image_std":[0.5,0.5,0.5],` +
			`"resample":2}`: vit,
		`{"do_center_crop":false,"size":{"height":32,"width":32},"resample":2,"do_normalize":false}`: {
			Size: 32, Resize: Bilinear, Std: [3]float32{1, 1, 1}},
	} {
		want.Floor = want.Crop // as transformers crops
		if got, err := FromHF([]byte(data)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", data, got, err)
		}
	}
	half := CLIP(64)
	half.Mean, half.Std, half.Crop, half.Resize = [3]float32{.5, .5, .5}, [3]float32{.25, .25, .25}, false, Bilinear
	longest := CLIP(224)
	longest.Crop, longest.Longest, longest.Fill = false, true, 9
	for data, want := range map[string]Preprocess{
		"": CLIP(224),
		`{"mean":[0.48145466,0.4578275,0.40821073],"std":[0.26862954,0.26130258,0.27577711]}`: CLIP(224),
		`{"size":[64,64],"mode":"RGB","mean":[0.5,0.5,0.5],"std":[0.25,0.25,0.25],"interpolation":"bilinear",` +
			`"resize_mode":"squash","fill_color":0}`: half,
		`{"resize_mode":"longest","fill_color":9}`: longest,
	} {
		if got, err := FromOpenCLIP([]byte(data), 224); err != nil || got != want {
			t.Errorf("%s: %+v, %v", data, got, err)
		}
	}
	data, err := json.Marshal(half)
	var back Preprocess
	if err != nil || json.Unmarshal(data, &back) != nil || back != half {
		t.Errorf("%s, %v", data, err)
	}
}

func TestConfigErrors(t *testing.T) {
	for data, want := range map[string]string{
		`{`:                            "preprocessor_config.json",
		`{"do_resize":false}`:          "do_resize",
		`{"size":256,"crop_size":224}`: "crop_size 224 differs from size 256",
		`{"resample":0}`:               "resample 0",
		`{"size":{"longest_edge":9}}`:  "need a number, shortest_edge",
		`{"image_mean":[0.5]}`:         "mean has 1 numbers",
		`{"image_std":[1,1,0]}`:        "std [1 1 0] from 1e-05",
		`{"image_std":[1,1,1e-30]}`:    "std [1 1 1e-30] from 1e-05",
		`{"image_std":[58,57,57]}`:     "by 255",
		`{"image_mean":[1e30,0,0]}`:    "mean [1e+30 0 0] must be from -1",
		`{"image_mean":[123,116,103]}`: "by 255",
		`{"size":1000000000}`:          "need 1 to 4096",
		`{"do_center_crop":false,"size":{"shortest_edge":9}}`: "does not go with",
		`{"rescale_factor":1}`:                                "need 1/255",
		`{"rescale_factor":0.00394}`:                          "need 1/255",
		`{"rescale_factor":0.00391}`:                          "need 1/255",
		`{"do_pad":true}`:                                     `unknown field "do_pad"`,
		`{"do_flip":true}`:                                    `unknown field "do_flip": remove a field that changes`,
	} {
		_, err := FromHF([]byte(data))
		goldentest.WantErrorOf(t, data, err, want)
	}
	for data, want := range map[string]string{
		`[`:                         "preprocess_cfg",
		`{"size":[2,3]}`:            "two equal ones",
		`{"resize_mode":"stretch"}`: "longest or squash",
		`{"resize_mode":"longest","fill_color":256}`: "fill_color 256, need one level from 0 to 255",
		`{"interpolation":"area"}`:                   `resize "area"`,
		`{"crop_pct":0.9}`:                           `preprocess_cfg: json: unknown field "crop_pct"`,
	} {
		_, err := FromOpenCLIP([]byte(data), 224)
		goldentest.WantErrorOf(t, data, err, want)
	}
}

func FuzzConfigs(f *testing.F) {
	f.Add([]byte(`{"crop_size":{"height":30,"width":30},"size":{"shortest_edge":30},"image_mean":[0.5,0.5,0.5]}`))
	f.Add([]byte(`{"size":[64,64],"std":[1,1,1],"resize_mode":"squash"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := FromHF(data); err == nil && p.Validate() != nil {
			t.Error("FromHF accepted what Validate refuses")
		}
		if p, err := FromOpenCLIP(data, 224); err == nil && p.Validate() != nil {
			t.Error("FromOpenCLIP accepted what Validate refuses")
		}
	})
}
