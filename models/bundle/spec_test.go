package bundle

import "testing"

// A specification is a name, a path (which may contain an equals sign), or pairs; an unknown key is refused.
func TestParseSpec(t *testing.T) {
	for text, want := range map[string]Spec{
		"vit-b16":                  {Folder: "vit-b16"},
		"runs/seed=1/bundle":       {Folder: "runs/seed=1/bundle"},
		`C:\runs\a=b`:              {Folder: `C:\runs\a=b`},
		"image=/a,text=b=c":        {Image: "/a", Text: "b=c"},
		"folder=x,variant=fp16":    {Folder: "x", Variant: "fp16"},
		"folder=runs/a=b/c,name=n": {Folder: "runs/a=b/c", Name: "n"},

		"folder=x,logit_scale=117.5,logit_bias=-12.9": {Folder: "x", LogitScale: 117.5, LogitBias: -12.9},
	} {
		if got, err := ParseSpec(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"picture=a,text=b", "image=a", "folder=a,image=b,text=c", "variant=fp16", "name=",
		"folder=a,logit_scale=0", "folder=a,logit_scale=e", "folder=a,logit_scale=1e40",
		"folder=a,logit_scale=Inf", "folder=a,logit_bias=-1e30", "folder=a,logit_bias=NaN", "folder=a,logit_bias="} {
		if got, err := ParseSpec(text); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
