// What users should know although the work goes on: one sentence on standard error.
#pragma once

#include <string>

namespace mrcfa {

void notice(const std::string& sentence);

}  // namespace mrcfa
