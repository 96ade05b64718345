// Package methods holds the published methods and wrappers, one small file each, and the one table that lists them.
package methods

// table lists base methods first, then wrappers, each sorted by name. Register adds to it.
var table = []Def{
	coCoOpDef, coopDef, dpfplDef, fedAPPRDef, fedAPTDef, fedCLIPDef, fedHPLDef, fedLoRADef, fedMGPDef, fedMVPDef,
	fedOTPDef, fedPGPDef, fedPHADef, fedPRDef, fedTPGDef, fedVPTDef, gptflDef, ivlpDef, kgCoOpDef, mapleDef,
	pfeddcDef, pFedMMADef, pFedMoAPDef, pfedpromptDef, plotDef, powderDef, prodaDef, proGradDef, promptFLDef,
	promptFolioDef, promptSRCDef, sdfedDef, tripDef, uoppDef, zeroShotDef,

	apflDef, apprDef, compressDef, dittoDef, dpDef, fedAMPDef, fedDynDef, fedNovaDef, fedNTDDef, fedOptDef, fedPerDef,
	fedProtoDef, fedProxDef, fedRepDef, gceDef, ggtpcDef, moonDef, nlPromptDef, qfflDef, robustDef, scaffoldDef,
}
