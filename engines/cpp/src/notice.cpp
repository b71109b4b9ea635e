#include "notice.hpp"

#include <iostream>

namespace mrcfa {

void notice(const std::string& sentence) {
  std::cerr << "mrcfa: " + sentence + "\n";  // in one piece, whatever other threads write
}

void notice_skipped(const Options& options, const std::string& sentence) {
  if (options.strict) {
    throw Error(sentence);
  }
  notice(sentence);
}

}  // namespace mrcfa
